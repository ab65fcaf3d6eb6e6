"""A config.json without rms_norm_eps, as the one of OLMoE 1B 7B was published."""

from generator.language import splice


@splice("hf.complete")
def _(hf):
    hf.setdefault("rms_norm_eps", 1e-5)
