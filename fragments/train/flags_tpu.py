"""Flags of libtpu."""

from generator.language import requires, setting

requires("hardware")  # which sets them

FLAGS = setting("libtpu_flags")
FLAGS_VARIABLE = "LIBTPU_INIT_ARGS"
