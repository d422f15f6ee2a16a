"""Rate limits and concurrency slots, in memory that workers share, or in Redis."""
