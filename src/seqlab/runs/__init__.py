"""How any task becomes a run folder, survives a crash and loads again."""
