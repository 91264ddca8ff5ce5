"""Who puts the pieces together: settings in, run folder out."""
