"""THE WAITING: one epoll reactor and the clocks. Knows nothing of crons; every room above may wait with it."""
