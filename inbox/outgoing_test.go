package inbox

import (
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestStored_KeepsTopics(t *testing.T) {
	now := time.Now()
	want := core.Outgoing{ID: "m1", Topic: "Shop.OrderPlaced", BaseTopics: []string{"Shop.OrderChanged", "Shop.IOrderEvent"}}
	encoded, err := encode([]core.Outgoing{want}, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(encoded, now)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if got[0].Topic != want.Topic || !slices.Equal(got[0].BaseTopics, want.BaseTopics) {
		t.Errorf("topic %q, base topics %q", got[0].Topic, got[0].BaseTopics)
	}
}
