"""Flags of libtpu."""

from generator.language import setting

FLAGS = setting("libtpu_flags")
FLAGS_VARIABLE = "LIBTPU_INIT_ARGS"
