//go:build race

package core_test

// With the race detector a message takes several times as long: a million would
// take minutes on two cores.
const soakMessages = 100_000
