"""What has parameters: layers with state in and state out, batch first."""
