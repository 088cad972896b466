//go:build race

package rabbitmq_test

// With the race detector a message takes several times as long.
const soakMessages = 20_000
