package rabbitmq

// Returned is how many returns of messages to queues a closed transport still remembers.
func Returned(t *Transport) int {
	c := t.queuePublisher.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.returned)
}
