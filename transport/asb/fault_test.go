//go:build darwin || linux

package asb_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestFault_OfTheAdministration(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{
		http.StatusRequestTimeout: true, http.StatusTooManyRequests: true, http.StatusInternalServerError: true, http.StatusServiceUnavailable: true,
		http.StatusBadRequest: false, http.StatusUnauthorized: false, http.StatusForbidden: false, http.StatusNotFound: false, http.StatusConflict: false,
	} {
		if got := asb.Transient(&azcore.ResponseError{StatusCode: status}); got != want {
			t.Errorf("the status %d is transient: %v, want %v", status, got, want)
		}
	}
}

// A busy service is not asked for another link, which takes ten requests more.
func TestRenew_KeepsTheLinkWhereTheServiceIsBusy(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "message")
	d := take(t, openReceiver(t, transport, "q", 1), 1)[0]
	links := s.Count(sbserver.OpAttachReceiver, "q")
	s.Inject(sbserver.Fault{
		Ops: []sbserver.Op{sbserver.OpRenewLock}, Action: sbserver.Refuse,
		Error: &amqp10.Error{Condition: sbserver.ServerBusy.Condition, Description: "busy"},
	})
	if err := d.Renew(t.Context()); err == nil {
		t.Error("the renewal was refused, and succeeded")
	}
	if err := d.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if n := s.Count(sbserver.OpAttachReceiver, "q") - links; n != 0 {
		t.Errorf("%d links were opened", n)
	}
}

func TestLockEnd(t *testing.T) {
	t.Parallel()
	const margin = 50 * time.Millisecond
	at := time.Now()
	cfg := asb.Config{LockDuration: time.Minute}
	for name, c := range map[string]struct {
		lock        time.Duration // 0: not known
		lockedUntil time.Time
		want        time.Duration // without the margin
		offset      time.Duration
	}{
		"clocks agree":                                {30 * time.Second, at.Add(30 * time.Second), 30 * time.Second, 0},
		"the service is ahead":                        {30 * time.Second, at.Add(10 * time.Minute), 30 * time.Second, 570 * time.Second},
		"clocks agree, the lock is not known":         {0, at.Add(30 * time.Second), 30 * time.Second, 0},
		"the service is ahead, the lock not known":    {0, at.Add(10 * time.Minute), time.Minute, 0},
		"the service is behind, the lock not known":   {0, at.Add(-10 * time.Minute), time.Minute, 0},
		"the service does not tell":                   {30 * time.Second, time.Time{}, 30 * time.Second, 0},
		"the service does not tell, and not the lock": {0, time.Time{}, time.Minute, 0},
		"the largest date":                            {30 * time.Second, time.UnixMilli(253402300799999), 30 * time.Second, 0},
		"the largest date, the lock not known":        {0, time.UnixMilli(253402300799999), time.Minute, 0},
	} {
		end, offset := asb.LockEnd(cfg, c.lock, c.lockedUntil, at)
		if got := end.Sub(at); got != c.want-margin || offset != c.offset {
			t.Errorf("%s: the lock ends after %v, and the service is ahead by %v; want %v, %v", name, got, offset, c.want-margin, c.offset)
		}
	}
}
