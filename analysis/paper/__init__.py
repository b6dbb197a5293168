"""What the paper prints and claims, and what runs say of it."""
