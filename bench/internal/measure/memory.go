package measure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Footprint is the memory of the process.
type Footprint struct {
	Resident float64 // MiB of memory, as the operating system counts
	Live     float64 // MiB of objects, after a collection
}

// Footprints sends messages of which each fails the given number of times before it is handled. It
// returns the memory of the process after each of the counts, which are in ascending order.
func (c Contender) Footprints(ctx context.Context, counts []int, failures int) (prints []Footprint, err error) {
	total := counts[len(counts)-1]
	l := newLedger(total, failures)
	for i := range l.attempts { // so that the whole slice is resident from the start
		l.attempts[i].Store(0)
	}
	list := workload.NewSequences(total)
	debug.FreeOSMemory() // garbage of earlier scenarios
	err = c.withSystem(ctx, l, l.handle, func(ctx context.Context, sys System) error {
		sent := 0
		for _, count := range counts {
			for sent < count {
				next := min(sent+streamWindow, count)
				if err := (Work{}).drive(ctx, sys, l, list, sent, next); err != nil {
					return err
				}
				sent = next
			}
			now, err := takeFootprint()
			if err != nil {
				return err
			}
			prints = append(prints, now)
		}
		return nil
	})
	return prints, err
}

func takeFootprint() (Footprint, error) {
	resident, err := residentBytes()
	if err != nil {
		return Footprint{}, err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	const mib = 1 << 20
	return Footprint{float64(resident) / mib, float64(m.HeapAlloc) / mib}, nil
}

// residentBytes returns the size of the process's resident set.
func residentBytes() (int, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if errors.Is(err, fs.ErrNotExist) { // not Linux
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.Sys - m.HeapReleased), nil
	}
	if err != nil {
		return 0, err
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return resident * os.Getpagesize(), nil
}
