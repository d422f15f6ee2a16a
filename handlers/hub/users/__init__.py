"""Users, for administrators: the list, the page of one user, invites."""
