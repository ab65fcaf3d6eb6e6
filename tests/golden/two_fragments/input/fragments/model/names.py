"""Names of people."""


def name_of(person: dict) -> str:
    return ' '.join([person["first"], person["last"]])
