package rabbitmq

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder notes what is written to it, write by write.
type recorder struct {
	net.Conn
	writes []string
	err    error
	closed bool
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

func (r *recorder) Close() error { r.closed = true; return nil }

func mustWrite(t *testing.T, w io.Writer, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if n, err := io.WriteString(w, f); err != nil || n != len(f) {
			t.Fatalf("Write of %d bytes = %d, %v", len(f), n, err)
		}
	}
}

func TestWire_HeldWritesTogether(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", mostKept+1)
	half := strings.Repeat("h", mostKept/2+1)
	for what, c := range map[string]struct {
		act  func(w *wire)
		want []string
	}{
		"nobody holds it": {func(w *wire) { mustWrite(t, w, "a", "b") }, []string{"a", "b"}},
		"held":            {func(w *wire) { w.hold(); mustWrite(t, w, "a", "b"); w.letGo(); mustWrite(t, w, "c") }, []string{"ab", "c"}},
		"held by two": {func(w *wire) {
			w.hold()
			w.hold()
			mustWrite(t, w, "a")
			w.letGo()
			mustWrite(t, w, "b", "c")
			w.letGo()
		}, []string{"a", "bc"}},
		"nothing to write": {func(w *wire) { w.hold(); w.letGo() }, nil},
		"too much at once": {func(w *wire) { w.hold(); mustWrite(t, w, "a", large, "b"); w.letGo() }, []string{"a", large, "b"}},
		"too much in all":  {func(w *wire) { w.hold(); mustWrite(t, w, half, half); w.letGo() }, []string{half, half}},
	} {
		t.Run(what, func(t *testing.T) {
			r := &recorder{}
			c.act(newWire(r))
			if strings.Join(r.writes, "|") != strings.Join(c.want, "|") {
				t.Errorf("there are %d writes, %.40q, want %.40q", len(r.writes), r.writes, c.want)
			}
		})
	}
}

// It is closed, as no other caller would be told of the error.
func TestWire_FailsOnRelease(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	w := newWire(r)
	w.hold()
	mustWrite(t, w, "a")
	r.err = errors.New("broken pipe")
	w.letGo()
	if !r.closed {
		t.Error("it is open")
	}
}

// It loses nothing and keeps each caller's order, whoever holds it.
func TestWire_ConcurrentUse(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	w := newWire(ours)
	const writers, frames = 8, 1000
	go func() {
		var wg sync.WaitGroup
		for writer := range writers {
			wg.Go(func() {
				for first := 0; first < frames; first += 10 {
					w.hold()
					for i := first; i < first+10; i++ {
						_, _ = w.Write([]byte{byte(writer), byte(i >> 8), byte(i)})
					}
					w.letGo()
				}
			})
		}
		wg.Wait()
		_ = ours.Close()
	}()
	got, err := io.ReadAll(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var next [writers]int
	for frame := range slices.Chunk(got, 3) {
		writer, i := frame[0], int(frame[1])<<8|int(frame[2])
		if i != next[writer] {
			t.Fatalf("writer %d: %d came after %d", writer, i, next[writer]-1)
		}
		next[writer]++
	}
	for writer, n := range next {
		if n != frames {
			t.Errorf("writer %d: %d of %d frames came", writer, n, frames)
		}
	}
}
