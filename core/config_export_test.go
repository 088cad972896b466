package core

// LimitPrefetchBytes replaces the limit for messages without a handler, before ep runs; 0
// means no limit.
func LimitPrefetchBytes(ep *Endpoint, n int) { ep.resolved.maxPrefetchBytes = n }
