//go:build !race

package core_test

const soakMessages = 1_000_000
