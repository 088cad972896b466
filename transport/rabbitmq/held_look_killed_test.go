package rabbitmq_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The variables with which a test has this program look at its queue in another process.
const (
	lookURL      = "REPRISE_LOOK_URL"
	lookMessages = "REPRISE_LOOK_MESSAGES"
)

// A program that holds all messages of a queue and is killed loses none, and costs one delivery.
func TestHeldLook_Killed(t *testing.T) {
	if url := os.Getenv(lookURL); url != "" {
		lookAndWait(t, url)
		return
	}
	t.Parallel()
	if testing.Short() {
		t.Skip("thousands of messages of 3 KB: not in short runs")
	}
	const n = 10_000
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "q")
		rest := bytes.Repeat([]byte("x"), 3000)
		for chunk := range slices.Chunk(numbered("q", 0, n), 1000) {
			for i := range chunk {
				chunk[i].Body = slices.Concat(chunk[i].Body, []byte(" "), rest)
			}
			mustSend(t, transport, chunk...)
		}
		t.Logf("a look at %d messages of 3 KB: %s", n, lookAndKill(t, s, n))
		awaitTrue(t, "all messages are ready again", func() bool {
			depth, err := transport.Depth(t.Context(), "q")
			return err == nil && depth.Ready == n
		})
		r := consume(t, transport, core.ReceiverConfig{Queue: "q", MaxInFlight: 1000, MaxDeliveries: 50})
		for came := 0; came < n; {
			for _, d := range next(t, r, 1000) {
				in := d.Incoming()
				if number, _, _ := strings.Cut(string(in.Body), " "); number != strconv.Itoa(came) || in.DeliveryCount != 2 {
					t.Fatalf("%s came in place of message %d, delivery %d, want 2", number, came, in.DeliveryCount)
				}
				came++
				if err := d.Complete(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// lookAndKill starts a process that looks, and kills it when it holds all messages. It returns the line that the process prints then.
func lookAndKill(t *testing.T, s *site, n int) string {
	t.Helper()
	looking := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHeldLook_Killed$", "-test.timeout=10m")
	looking.Env = append(os.Environ(), lookURL+"="+s.PasswordURL(s.vhost), lookMessages+"="+strconv.Itoa(n), "GOMEMLIMIT=230MiB")
	out, err := looking.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := looking.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killed := looking.Process.Kill(); killed != nil {
		t.Error(killed)
	}
	_ = looking.Wait() // it was killed
	if err != nil || !strings.HasPrefix(line, "holds ") {
		t.Fatalf("the process that looks says %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// lookAndWait holds all messages of the queue, without their bodies, until the process is killed.
func lookAndWait(t *testing.T, url string) {
	n, err := strconv.Atoi(os.Getenv(lookMessages))
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rabbitmq.New(rabbitmq.Config{URLs: []string{url}, NoDelays: true})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	limit := min(n, 2000)
	r := consume(t, transport, core.ReceiverConfig{Queue: "q", MaxInFlight: limit, MaxDeliveries: 1000})
	var held []core.Delivery
	for len(held) < n {
		for _, d := range next(t, r, 1000) {
			d.Incoming().Body, d.Incoming().Native = nil, nil
			held = append(held, d)
		}
		if len(held) == limit {
			limit = min(n, 2*limit)
			r.SetMaxInFlight(limit)
		}
	}
	peak, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(peak)) {
		if size, found := strings.CutPrefix(line, "VmHWM:"); found {
			fmt.Printf("holds %d after %v with %s\n", len(held), time.Since(began).Round(time.Millisecond), strings.TrimSpace(size))
			select {}
		}
	}
	fmt.Printf("holds %d after %v\n", len(held), time.Since(began).Round(time.Millisecond))
	select {}
}
