// Package delays computes the delays and pauses between tries.
package delays

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"
)

// Schedule has the delays of a number of retries. All copies of it give the same delays.
type Schedule struct {
	Increase time.Duration
	Factor   float64 // 0: the delay grows by Increase in each round
	Ceiling  time.Duration
	List     []time.Duration // instead of Increase, Factor and Ceiling
	Jitter   float64         // the largest part of a delay by which it is lengthened
}

// base returns the delay of the given round (0 is the first) without jitter.
func (s Schedule) base(round int) time.Duration {
	if len(s.List) > 0 {
		return s.List[min(round, len(s.List)-1)]
	}
	delay := float64(s.Increase)
	if s.Factor > 0 && delay > 0 {
		delay *= math.Pow(s.Factor, float64(round))
	} else {
		delay *= float64(round + 1)
	}
	d := Max
	if delay < float64(Max) {
		d = time.Duration(delay)
	}
	if s.Ceiling > 0 {
		d = min(d, s.Ceiling)
	}
	return d
}

// Longest returns the longest delay of the first n rounds. Unless they are listed,
// delays never shrink.
func (s Schedule) Longest(rounds int) time.Duration {
	d := s.base(rounds - 1)
	if len(s.List) > 0 {
		d = slices.Max(s.List)
	}
	return Add(d, time.Duration(float64(d)*s.Jitter))
}

// Delay returns the delay of the given round for a message, with jitter that is derived
// from both: messages that failed together are retried at different times, and the same
// failure always gets the same delay.
func (s Schedule) Delay(round int, messageID string) time.Duration {
	d := s.base(round)
	if s.Jitter == 0 {
		return d
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s", round, messageID)
	fraction := float64(mix(h.Sum64())>>11) / (1 << 53)
	return Add(d, time.Duration(float64(d)*s.Jitter*fraction))
}

// Total returns the longest total wait of this number of retries.
func (s Schedule) Total(retries int) (sum time.Duration) {
	if retries > 1_000_000 { // in effect without end
		return Max
	}
	for round := range retries {
		d := s.base(round)
		sum = Add(sum, Add(d, time.Duration(float64(d)*s.Jitter)))
		if sum == Max {
			break
		}
	}
	return sum
}

// mix makes every bit of a hash depend on its whole input: the last bytes of the input
// hardly influence the upper bits of FNV. (The finalizer of splitmix64.)
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Max is the longest duration. Sums and products that exceed it are Max.
const Max = time.Duration(1<<63 - 1)

// Add returns a + b, at most Max. Neither is negative.
func Add(a, b time.Duration) time.Duration {
	if a > Max-b {
		return Max
	}
	return a + b
}

// Multiply returns d * n, at most Max. Both are above 0.
func Multiply(d time.Duration, n int) time.Duration {
	if int64(n) > int64(Max/d) {
		return Max
	}
	return d * time.Duration(n)
}
