package loopback

import (
	"net"
	"testing"
)

func TestPort_ReservedForItsOwner(t *testing.T) {
	t.Parallel()
	// Were these free, 500 listeners would get one of them in all but one run of a
	// thousand: the kernel chooses among some 28,000 ports, half of them at first.
	const n = 500
	reserved := map[int]bool{}
	for range n {
		port, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := port.Release(); err != nil {
				t.Error(err)
			}
		})
		if reserved[port.Number()] {
			t.Fatalf("port %d was reserved twice", port.Number())
		}
		reserved[port.Number()] = true
	}
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if port := l.Addr().(*net.TCPAddr).Port; reserved[port] {
			t.Errorf("a listener got port %d, which is reserved", port)
		}
		l.Close()
		c, err := net.Dial("tcp", target.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if port := c.LocalAddr().(*net.TCPAddr).Port; reserved[port] {
			t.Errorf("an outgoing connection got port %d, which is reserved", port)
		}
		c.Close()
	}
}
