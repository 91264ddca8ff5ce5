"""What a training costs, said before anything is trained."""
