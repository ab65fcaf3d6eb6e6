"""The threading operator: values that travel through functions which do not name them."""
