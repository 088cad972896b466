//go:build race

package core_test

// With the race detector a message takes several times as long: a million would
// take minutes on two cores. make test also runs the million, without it.
const soakMessages = 30_000
