package filetransport

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestName_HasTheStateOfAMessage(t *testing.T) {
	moment := time.Date(2026, 11, 20, 14, 31, 0, 123456789, time.FixedZone("east", 3600))
	for name, m := range map[string]message{
		"20261120T133100.123456789Z_1_ID_new":           {moment, 1, "ID", "new"},
		"20261120T133100.123456789Z_12_ID_back":         {moment, 12, "ID", "back"},
		"20261120T133100.123456789Z_3_ID_held-TOKEN":    {moment, 3, "ID", "held-TOKEN"},
		"20261120T133100.000000000Z_1_ID_new":           {moment.Truncate(time.Second), 1, "ID", "new"},
		"23181120T133100.123456789Z_1_far-away_new":     {moment.AddDate(292, 0, 0), 1, "far-away", "new"},
		"20261120T133100.123456789Z_4294967296_ID_back": {moment, 1 << 32, "ID", "back"},
	} {
		if got := m.name(); got != name {
			t.Errorf("name %s, want %s", got, name)
		}
		got, ok := parseName(name)
		if !ok || !got.at.Equal(m.at) || got.count != m.count || got.id != m.id || got.state != m.state {
			t.Errorf("%s was read as %+v, %v", name, got, ok)
		}
	}
}

// foreign are names that are no message's.
var foreign = []string{
	".DS_Store", "README", "", "_", "___", "____", ".nfs000000000001", "20261120T133100.123456789Z", "core.1234",
	"20261120T133100.123456789Z_1_ID", "20261120T133100.123456789Z_1_ID_new_", "20261120T133100.123456789Z_1_ID_new~", "20261120T133100.123456789Z_1_ID_", "20261120T133100.123456789Z_1_ID_held",
	"unsent-ID",
	"20261120T133100.123456789Z_0_ID_new", "20261120T133100.123456789Z_-1_ID_new", "20261120T133100.123456789Z_+1_ID_new",
	"20261120T133100.123456789Z_01_ID_new", "20261120T133100.123456789Z_one_ID_new", "20261120T133100.123456789Z__ID_new",
	"20261120T133100.123456789Z_99999999999999999999_ID_new", "20261120T133100.12345678Z_1_ID_new", "20261120T133100Z_1_ID_new",
	"20261320T133100.123456789Z_1_ID_new", "2026-11-20T13:31:00.123456789Z_1_ID_new", "soon_1_ID_new", " 20261120T133100.123456789Z_1_ID_new",
}

func TestName_ForeignIsNoMessage(t *testing.T) {
	for _, name := range foreign {
		if m, ok := parseName(name); ok {
			t.Errorf("%q was read as %+v", name, m)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("20261120T133100.123456789Z_1_ID_new")
	f.Add("20261120T133100.123456789Z_2_ID_held-TOKEN")
	for _, name := range foreign {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if m, ok := parseName(name); ok && (m.name() != name || m.count < 1) {
			t.Errorf("%q was read as %+v", name, m)
		}
	})
}

func TestName_OrderOfTime(t *testing.T) {
	now := time.Now()
	var names []string
	for _, d := range []time.Duration{-time.Hour, -1, 0, 1, time.Millisecond, time.Second, time.Hour, 24 * 365 * time.Hour} {
		names = append(names, message{now.Add(d), 1, "ID", "new"}.name())
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in order: %q", names)
	}
}

func TestTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, lock := time.Now(), time.Minute
		waiting := message{now.Add(-time.Hour), 3, "ID", "back"}
		held := claim(waiting, lock)
		for name, c := range map[string]struct{ got, want message }{
			"a claim is no failure":                            {held, message{now.Add(lock), 3, "", held.state}},
			"a claim of what is held means that a holder died": {claim(held, lock), message{now.Add(lock), 4, "", ""}},
			"a renewal moves the end of the lock alone":        {renew(held, 2*lock), message{now.Add(2 * lock), 3, "", held.state}},
			"a release is no failure":                          {release(held, lock), message{now, 3, "", "back"}},
			"an abandoned message has failed":                  {abandon(held, lock), message{now, 4, "", "back"}},
		} {
			if c.got.state != c.want.state && c.want.state != "" || !c.got.at.Equal(c.want.at) || c.got.count != c.want.count {
				t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
			}
			if c.got.id != "ID" {
				t.Errorf("%s: id %q", name, c.got.id)
			}
		}
		if complete(held, lock) != (message{}) {
			t.Error("of a complete message there is a file")
		}
		// The same moment and the same count: only the token makes the name another one.
		if second := claim(release(held, 0), lock); !second.held() || second.name() == held.name() {
			t.Errorf("a held name came again: %s", second.name())
		}
	})
}
