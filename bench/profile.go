package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiles are the files for go tool pprof; "" is none.
type profiles struct{ cpu, allocs string }

// start begins the profiles. The returned function ends and writes them.
func (p profiles) start() (stop func() error, err error) {
	if p.allocs != "" {
		runtime.MemProfileRate = 4 << 10 // small objects matter most here
	}
	var cpu *os.File
	if p.cpu != "" {
		if cpu, err = os.Create(p.cpu); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, errors.Join(err, cpu.Close())
		}
	}
	return func() error {
		var errs []error
		if cpu != nil {
			pprof.StopCPUProfile()
			errs = append(errs, cpu.Close())
		}
		if p.allocs != "" {
			errs = append(errs, writeAllocs(p.allocs))
		}
		return errors.Join(errs...)
	}, nil
}

func writeAllocs(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
