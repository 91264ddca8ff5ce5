"""Why is it so, and what does it cost."""
