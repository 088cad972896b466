package recoverability_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: store

// ParkFile is a file on a volume that outlives the process.
type ParkFile string

func (f ParkFile) LoadPark(context.Context, core.ObservedEndpoint) (*core.Park, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p *core.Park
	return p, json.Unmarshal(data, &p)
}

func (f ParkFile) SavePark(_ context.Context, _ core.ObservedEndpoint, p *core.Park) error {
	data, err := json.Marshal(p) // "null" for one that is resumed
	if err != nil {
		return err
	}
	if err := os.WriteFile(string(f)+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(string(f)+".new", string(f))
}

// end

func parked(file string) core.Recoverability {
	// snippet: park
	recoverability := core.Recoverability{
		UnacceptableMessageLimit:  100,
		UnacceptableMessageWindow: time.Hour,
		UnacceptableMessageAction: core.LimitPark,
		ParkStore:                 ParkFile(file),
	}
	// end
	return recoverability
}

func TestPark_TheNextProcessStartsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		defer transport.Close(t.Context())
		recoverability := parked(filepath.Join(t.TempDir(), "parked.json"))
		recoverability.UnacceptableMessageLimit = 1
		var last *core.Endpoint
		for process := range 2 {
			ep, err := core.New("orders", transport, core.Config{Recoverability: recoverability})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, "orders.place", func(context.Context, *core.TypedMessage[string]) error { return core.Reject(errors.New("no")) })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ep.Run(ctx) }()
			<-ep.Ready()
			if process == 0 {
				if err := ep.Send(t.Context(), "orders", "orders.place", "x"); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if h := ep.Health(); h.Parked == nil || len(h.Parked.MessageIDs) != 1 {
				t.Errorf("process %d: %+v, want it parked", process, h.Parked)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			last = ep
		}
		last.Resume()
		if p, err := recoverability.ParkStore.LoadPark(t.Context(), core.ObservedEndpoint{}); p != nil || err != nil {
			t.Errorf("after Resume the file has %+v, %v", p, err)
		}
	})
}
