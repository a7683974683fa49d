"""From a user's own federation to a decision: one model, each alone, adapted, or groups."""
