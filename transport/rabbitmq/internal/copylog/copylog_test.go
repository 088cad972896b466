package copylog

import (
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/leaks"
)

func TestLog(t *testing.T) {
	t.Parallel()
	type step struct {
		body        string
		redelivered bool
		acknowledge bool // instead of a delivery, on the present channel
		lose        bool // the channel instead
		trusted     bool
	}
	first, second := func(body string, trusted bool) step { return step{body: body, trusted: trusted} }, func(body string, trusted bool) step {
		return step{body: body, redelivered: true, trusted: trusted}
	}
	acknowledge, lose := step{acknowledge: true}, step{lose: true}
	for name, steps := range map[string][]step{
		"a failed attempt":                        {first("a", true), second("a", true), second("a", true)},
		"first delivered elsewhere":               {second("a", true), second("a", true)},
		"a lost acknowledgement":                  {first("a", true), acknowledge, lose, second("a", true), acknowledge, lose, second("a", true)},
		"a lost delivery":                         {first("a", true), lose, second("a", true)},
		"another message":                         {first("a", true), first("b", false), second("b", false), second("a", false)},
		"the same message once more":              {first("a", true), first("a", false), second("a", false)},
		"once more when it was acknowledged":      {first("a", true), acknowledge, first("a", false), second("a", false)},
		"another one, first delivered elsewhere":  {first("a", true), acknowledge, lose, second("b", false)},
		"the same one, first delivered elsewhere": {first("a", true), acknowledge, second("a", false), lose, second("a", false)},
	} {
		l, over := newLog(), make(chan struct{})
		for i, s := range steps {
			switch {
			case s.acknowledge:
				l.Acknowledge("x@billing", over)
			case s.lose:
				close(over)
				over = make(chan struct{})
			default:
				if got := l.Delivered(&core.Incoming{NativeID: "x@billing", Body: []byte(s.body)}, s.redelivered); got != s.trusted {
					t.Errorf("%s: step %d: the name is trusted: %v, want %v", name, i, got, s.trusted)
				}
			}
		}
	}
}

func TestLog_Size(t *testing.T) {
	t.Parallel()
	l := newLog()
	l.Resize(1000)
	l.Resize(1)
	for i := range 3 * limit {
		l.Delivered(&core.Incoming{NativeID: strconv.Itoa(i)}, false)
	}
	if n := l.copies.Len(); n != limit+4*1000 {
		t.Errorf("it holds %d names", n)
	}
}

// A log outlives receivers.
func TestLogs(t *testing.T) {
	t.Parallel()
	var l Logs
	billing := l.For("billing")
	if l.For("billing") != billing {
		t.Error("a queue has two logs")
	}
	if l.For("orders") == billing {
		t.Error("two queues share a log")
	}
}

func TestChecksum(t *testing.T) {
	t.Parallel()
	in := func(change func(*core.Incoming)) *core.Incoming {
		in := &core.Incoming{ID: "id", Body: []byte("body"), GroupKey: "group", Properties: map[string]string{"p": "1", "q": "2"}}
		in.Headers.Set("a", "1")
		in.Headers.Set("b", "2")
		change(in)
		return in
	}
	want := checksum(in(func(*core.Incoming) {}))
	if got := checksum(in(func(in *core.Incoming) {
		in.Headers = core.Headers{}
		in.Headers.Set("b", "2")
		in.Headers.Set("a", "1")
	})); got != want {
		t.Error("the order of headers changes it")
	}
	for name, change := range map[string]func(*core.Incoming){
		"id":              func(in *core.Incoming) { in.ID = "other" },
		"body":            func(in *core.Incoming) { in.Body = []byte("other") },
		"group":           func(in *core.Incoming) { in.GroupKey = "other" },
		"property":        func(in *core.Incoming) { in.Properties["p"] = "2" },
		"header":          func(in *core.Incoming) { in.Headers.Set("a", "2") },
		"values swapped":  func(in *core.Incoming) { in.Headers.Set("a", "2"); in.Headers.Set("b", "1") },
		"one more header": func(in *core.Incoming) { in.Headers.Set("c", "") },
	} {
		if checksum(in(change)) == want {
			t.Errorf("%s: a change does not change it", name)
		}
	}
}

func BenchmarkLog(b *testing.B) {
	l, over := newLog(), make(chan struct{})
	in := &core.Incoming{ID: "id", Body: make([]byte, 1000)}
	for i := range 12 {
		in.Headers.Set("NServiceBus.Header"+strconv.Itoa(i), "01234567890123456789")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.NativeID = strconv.Itoa(i)
		l.Delivered(in, false)
		l.Acknowledge(in.NativeID, over)
	}
}

func BenchmarkChecksum(b *testing.B) {
	in := &core.Incoming{ID: "id", Body: make([]byte, 1000)}
	for i := range 12 {
		in.Headers.Set("NServiceBus.Header"+strconv.Itoa(i), "01234567890123456789")
	}
	for b.Loop() {
		checksum(in)
	}
}

// Names have the size that their sender chooses.
func TestLog_KeepsNoNames(t *testing.T) {
	var l *Log
	growth := leaks.HeapGrowth(func() {
		l = newLog()
		for i := range limit + 100 {
			l.Delivered(&core.Incoming{NativeID: strings.Repeat("x", 64<<10) + strconv.Itoa(i)}, false)
		}
	})
	if growth > 4<<20 || l.copies.Len() != limit {
		t.Errorf("%d names keep %d MiB", l.copies.Len(), growth>>20)
	}
}
