//go:build !race

package rabbitmq_test

const (
	soakMessages = 200_000
	kills        = 20
)
