"""What runs when: workers, ticks, limits, maintenance."""
