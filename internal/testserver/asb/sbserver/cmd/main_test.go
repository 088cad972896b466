//go:build darwin || linux

package main

import (
	"io"
	"testing"
)

func TestRun_RefusesArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-nonsense"}, {"-tier", "Basic"}, {"-addr", "nowhere"}, {"-addr", "127.0.0.1:0", "-admin-addr", "127.0.0.1:0", "-topic", "?"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
