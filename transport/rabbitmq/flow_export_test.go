package rabbitmq

// Returned is how many returns of messages to queues a closed transport still remembers.
func Returned(t *Transport) int {
	s := t.queues.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.returned)
}
