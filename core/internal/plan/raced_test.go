//go:build race

package plan

// raced: the race detector makes the exploration several times slower.
const raced = true
