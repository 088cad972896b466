module github.com/reprise-go/reprise/examples/resilience

go 1.26.0

require (
	github.com/reprise-go/reprise v0.0.0
	github.com/reprise-go/reprise/middleware/resilience v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
)

replace (
	github.com/reprise-go/reprise => ../..
	github.com/reprise-go/reprise/middleware/resilience => ../../middleware/resilience
)
