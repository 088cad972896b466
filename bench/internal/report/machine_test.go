package report

import "testing"

func TestCPUModel(t *testing.T) {
	for info, want := range map[string]string{
		"processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n": "AMD EPYC",
		"": "unknown processor",
	} {
		if got := cpuModel(info); got != want {
			t.Errorf("cpuModel(%q) is %q, want %q", info, got, want)
		}
	}
}
