package recoverability_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: pause

// NewOrders returns an endpoint that pauses when 100 messages have failed within an hour,
// and the handler of the request with which an operator resumes it. The file marker, on a
// volume that outlives the process, keeps the next process paused too.
func NewOrders(t core.Transport, marker string) (*core.Endpoint, http.Handler, error) {
	var orders *core.Endpoint
	pause := func(_ context.Context, err error) {
		orders.Pause()
		orders.RaiseCritical(errors.Join(err, os.WriteFile(marker, []byte(err.Error()), 0o600)))
	}
	orders, err := core.New("orders", t, core.Config{Recoverability: core.Recoverability{
		UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 100, Window: time.Hour, OnReached: pause},
	}})
	if err != nil {
		return nil, nil, err
	}
	switch _, err := os.Stat(marker); {
	case err == nil:
		orders.Pause()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	resume := func(w http.ResponseWriter, _ *http.Request) {
		if err := os.Remove(marker); err != nil && !errors.Is(err, fs.ErrNotExist) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		orders.Resume()
	}
	return orders, http.HandlerFunc(resume), nil
}

// end

// Each process lets 100 messages fail at most, and none while the operator has not resumed.
func TestLimit_PausesUntilAnOperatorResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		defer transport.Close(t.Context())
		marker := filepath.Join(t.TempDir(), "orders-paused")
		for process, want := range []int{100, 100, 150} { // messages in the error queue
			orders, resume, err := NewOrders(transport, marker)
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(orders, place, func(context.Context, *core.Message, string) error {
				time.Sleep(time.Millisecond)
				return core.GiveUp(errors.New("no"))
			})
			if err := orders.SetConcurrency(1); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- orders.Run(ctx) }()
			<-orders.Ready()
			if process == 0 {
				for range 150 {
					if err := orders.Send(t.Context(), "orders", place.Of("x")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if process == 2 {
				response := httptest.NewRecorder()
				resume.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/resume", nil))
				if response.Code != http.StatusOK {
					t.Errorf("resume answers %d %s", response.Code, response.Body)
				}
			}
			time.Sleep(time.Minute)
			h := orders.Health()
			if paused := process < 2; h.Paused != paused {
				t.Errorf("process %d: paused is %t", process, h.Paused)
			}
			if process == 0 && (h.LastCritical == nil || !errors.Is(h.LastCritical.Err, core.ErrUnacceptableMessageLimit)) {
				t.Errorf("the critical error is %+v", h.LastCritical)
			}
			if got, err := transport.Depth(t.Context(), "error"); got.Ready != want {
				t.Errorf("process %d: %d messages failed (%v), want %d", process, got.Ready, err, want)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
