package leaks

import "runtime"

// HeapGrowth calls do, and returns by how many bytes the memory in use has grown. Other
// goroutines count too, so that the test must not run in parallel with others.
func HeapGrowth(do func()) int64 {
	inUse := func() int64 {
		for range 2 { // the first collection leaves the memory of finalizers and pools
			runtime.GC()
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := inUse()
	do()
	return inUse() - before
}
