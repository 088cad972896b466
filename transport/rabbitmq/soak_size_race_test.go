//go:build race

package rabbitmq_test

// With the race detector a message takes several times as long. kills is how often the
// broker is killed while the messages pass.
const (
	soakMessages = 6_000
	kills        = 3
)
