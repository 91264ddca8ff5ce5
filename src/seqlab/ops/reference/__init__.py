"""The equations, plainly: one step, one loop, one derivative at a time. Slow on purpose; tests compare the fast paths
with these, values and gradients."""
