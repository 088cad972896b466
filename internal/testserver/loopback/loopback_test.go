//go:build darwin || linux

package loopback

import (
	"net"
	"testing"
)

func TestPort_CanBeListenedOnRepeatedly(t *testing.T) {
	t.Parallel()
	port, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l, err := net.Listen("tcp", port.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", port.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
	for range 2 { // the second time changes nothing
		if err := port.Release(); err != nil {
			t.Error(err)
		}
	}
}
