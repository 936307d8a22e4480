"""The parts that strategies are composed of, each beside its formula."""
