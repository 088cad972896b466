package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine describes the machine, on which figures depend.
type Machine struct {
	cpu, os, goVersion string
	cores              int
}

// ThisMachine describes the machine on which this process runs.
func ThisMachine() Machine {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil { // not Linux
		info = nil
	}
	return Machine{
		cpu: cpuModel(string(info)), os: runtime.GOOS + "/" + runtime.GOARCH,
		goVersion: runtime.Version(), cores: runtime.GOMAXPROCS(0),
	}
}

// cpuModel finds the processor's name in the text of /proc/cpuinfo.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s", m.cpu, m.cores, m.os, m.goVersion)
}
