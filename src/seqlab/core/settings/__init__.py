"""Every setting, its default, its limits and its meaning: the only home of all four, free of torch."""
