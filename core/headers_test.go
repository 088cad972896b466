package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestHeaders_ZeroValue(t *testing.T) {
	var h Headers
	if h.Len() != 0 || h.Get("a") != "" || h.Bytes() != 0 || len(h.Map()) != 0 {
		t.Errorf("%v", h.Map())
	}
	if _, ok := h.Lookup(""); ok {
		t.Error("has an empty key")
	}
	h.Del("a")
	h.Set("a", "1")
	if h.Get("a") != "1" || h.Len() != 1 {
		t.Errorf("%v", h.Map())
	}
}

func TestHeaders_SetAndDel(t *testing.T) {
	var h Headers
	for _, key := range []string{"c", "a", "b"} {
		h.Set(key, key+key)
	}
	h.Set("a", "over")
	h.Set("empty", "")
	h.Del("b", "missing")
	if value, ok := h.Lookup("empty"); !ok || value != "" {
		t.Errorf("an empty value is %q, %v", value, ok)
	}
	if _, ok := h.Lookup("A"); ok {
		t.Error("keys are not case sensitive")
	}
	if got, want := keysOf(h), []string{"c", "a", "empty"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if want := map[string]string{"c": "cc", "a": "over", "empty": ""}; !maps.Equal(h.Map(), want) {
		t.Errorf("%v", h.Map())
	}
	if want := len("c"+"cc"+"a"+"over"+"empty") + 0; h.Bytes() != want {
		t.Errorf("%d bytes, want %d", h.Bytes(), want)
	}
	t.Run("a key that was removed comes last again", func(t *testing.T) {
		h.Del("c")
		h.Set("c", "new")
		if got, want := keysOf(h), []string{"a", "empty", "c"}; !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
	t.Run("iteration can end early", func(t *testing.T) {
		n := 0
		for range h.All() {
			n++
			break
		}
		if n != 1 {
			t.Errorf("%d", n)
		}
	})
	t.Run("iteration sees the headers that were there when it began", func(t *testing.T) {
		var seen []string
		for key := range h.All() {
			seen = append(seen, key)
			h.Set("added to "+key, "")
			h.Del("c")
		}
		if want := []string{"a", "empty", "c"}; !slices.Equal(seen, want) {
			t.Errorf("%v", seen)
		}
	})
}

func keysOf(h Headers) []string {
	var keys []string
	for key := range h.All() {
		keys = append(keys, key)
	}
	return keys
}

func TestHeaders_CopiesAreIndependent(t *testing.T) {
	for origin, base := range map[string]func() Headers{
		"set": func() Headers {
			var h Headers
			h.Set("a", "1")
			h.Set("b", "2")
			return h
		},
		"composed": func() Headers { return composed("a", "b") },
		"a map":    func() Headers { return HeadersFromMap(map[string]string{"a": "1", "b": "2"}) },
	} {
		t.Run(origin, func(t *testing.T) { checkCopiesAreIndependent(t, base) })
	}
}

func checkCopiesAreIndependent(t *testing.T, base func() Headers) {
	t.Helper()
	writes := map[string]func(*Headers){
		"a new key":           func(h *Headers) { h.Set("new", "x") },
		"another new key":     func(h *Headers) { h.Set("other", "y") },
		"an old key":          func(h *Headers) { h.Set("a", "changed") },
		"the same value":      func(h *Headers) { h.Set("a", "1") },
		"a removal":           func(h *Headers) { h.Del("a") },
		"a removal and a key": func(h *Headers) { h.Del("b"); h.Set("new", "z") },
		"much room and a key": func(h *Headers) { h.Grow(30); h.Set("roomy", "r") },
		"room and a key":      func(h *Headers) { h.Grow(1); h.Set("roomy", "r") },
		"many keys": func(h *Headers) {
			for i := range 50 {
				h.Set(fmt.Sprint("k", i), "v")
			}
		},
	}
	for first, write := range writes {
		for second, writeToo := range writes {
			t.Run(first+", then "+second, func(t *testing.T) {
				original := base()
				one, two := original, original
				write(&one)
				after := one.Map()
				writeToo(&two)
				afterToo := two.Map()
				three := two
				write(&three)
				write(&original)
				if !maps.Equal(one.Map(), after) || !maps.Equal(original.Map(), after) {
					t.Errorf("the first copy has become %v, was %v", one.Map(), after)
				}
				if !maps.Equal(two.Map(), afterToo) {
					t.Errorf("the second copy has become %v, was %v", two.Map(), afterToo)
				}
				alone := base()
				writeToo(&alone)
				if !maps.Equal(two.Map(), alone.Map()) {
					t.Errorf("the second copy is %v, would be %v alone", two.Map(), alone.Map())
				}
			})
		}
	}
}

func TestHeaders_ConcurrentCopies(t *testing.T) {
	var shared Headers
	shared.Set("shared", "0")
	shared.Set("to be removed", "0")
	const writers, keys = 8, 100
	results := make([]Headers, writers)
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			h := shared
			for k := range keys {
				h.Set(fmt.Sprint("key ", k), fmt.Sprint(w))
				if shared.Len() != 2 || shared.Get("shared") != "0" {
					t.Errorf("the shared copy has changed: %v", shared.Map())
				}
			}
			h.Set("shared", fmt.Sprint(w))
			h.Del("to be removed")
			results[w] = h
		})
	}
	wait.Wait()
	for w, h := range results {
		if h.Len() != keys+1 || h.Get("shared") != fmt.Sprint(w) {
			t.Errorf("copy %d: %d headers", w, h.Len())
		}
		for k := range keys {
			if got := h.Get(fmt.Sprint("key ", k)); got != fmt.Sprint(w) {
				t.Fatalf("copy %d has copy %s's value of key %d", w, got, k)
			}
		}
	}
}

func TestHeaders_FromMap(t *testing.T) {
	m := map[string]string{"b": "2", "a": "1", "": "no key"}
	h := HeadersFromMap(m)
	if got := keysOf(h); !slices.Equal(got, []string{"", "a", "b"}) {
		t.Errorf("order %v", got)
	}
	m["a"] = "changed"
	back := h.Map()
	back["b"] = "changed"
	if h.Get("a") != "1" || h.Get("b") != "2" {
		t.Errorf("%v shares its map", h.Map())
	}
}

func TestHeaders_JSON(t *testing.T) {
	h := HeadersFromMap(map[string]string{"b": "2", "a": "1", "empty": "", "ünï \"q\"": "\n\x00é"})
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), `{"a":"1","b":"2","empty":""`) {
		t.Errorf("%s", text)
	}
	read := HeadersFromMap(map[string]string{"old": "x"})
	copied := read
	if err := json.Unmarshal(text, &read); err != nil || !maps.Equal(read.Map(), h.Map()) {
		t.Errorf("%v, %v", read.Map(), err)
	}
	if copied.Get("old") != "x" || copied.Len() != 1 {
		t.Errorf("a copy has changed: %v", copied.Map())
	}
	for _, wrong := range []string{`[]`, `{"a": 1}`, `{"a": null`, `"x"`} {
		before := h
		if err := json.Unmarshal([]byte(wrong), &before); err == nil || !maps.Equal(before.Map(), h.Map()) {
			t.Errorf("%s: %v, %v", wrong, before.Map(), err)
		}
	}
	t.Run("the zero value is an empty object", func(t *testing.T) {
		if text, err := json.Marshal(Headers{}); err != nil || string(text) != "{}" {
			t.Errorf("%s, %v", text, err)
		}
	})
}

func TestHeaders_SetAllocations(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var h Headers
		for i := range 64 {
			h.Set(headerKeys[i], "v")
		}
	}); n > 16 {
		t.Errorf("%v allocations for 64 keys", n)
	}
}

func TestHeaders_Grow(t *testing.T) {
	var empty, taken Headers
	taken.Grow(len(headerKeys))
	spare := taken
	taken.Set("taken", "by this one")
	for name, original := range map[string]Headers{"nothing": empty, "a copy whose room is taken": spare} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() {
				h := original
				h.Grow(len(headerKeys))
				for _, key := range headerKeys {
					h.Set(key, "v")
				}
			}); n > 2 {
				t.Errorf("%v allocations for %d keys with room for them", n, len(headerKeys))
			}
		})
	}
	t.Run("changes nothing", func(t *testing.T) {
		h := taken
		for _, n := range []int{-1, 0, 1, 1000} {
			h.Grow(n)
			if h.Len() != 1 || h.Get("taken") != "by this one" || spare.Len() != 0 {
				t.Errorf("Grow(%d) has made it %v", n, h.Map())
			}
		}
	})
}

var headerKeys = func() (keys [64]string) {
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	return keys
}()

// composed returns headers as compose and an adapter's parser make them: with room
// behind them that no Headers has claimed.
func composed(keys ...string) Headers {
	pairs := make([]header, 0, len(keys)+2)
	for _, key := range keys {
		pairs = append(pairs, header{key, "composed"})
	}
	return Headers{pairs: pairs}
}

// FuzzHeaders plays a program of writes and copies against plain maps. Each
// step is three bytes: what to do, on which of eight variables, and with what.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte{0, 0, 1, 3, 0, 1, 0, 0, 2, 0, 1, 2})
	f.Add([]byte{4, 0, 2, 3, 0, 1, 0, 0, 1, 4, 1, 1, 0, 1, 2, 0, 1, 3, 0, 0, 4})
	f.Add([]byte{0, 0, 1, 0, 0, 2, 3, 0, 1, 1, 1, 1, 0, 0, 3, 0, 1, 4, 2, 0, 1})
	f.Add([]byte{0, 0, 1, 3, 0, 1, 0, 1, 1, 1, 0, 1, 3, 1, 2, 0, 2, 1})
	f.Add([]byte{5, 0, 3, 4, 0, 1, 0, 0, 9, 3, 0, 1, 0, 1, 8, 0, 0, 7})
	f.Add([]byte{5, 0, 3, 3, 0, 1, 0, 0, 9, 0, 1, 8, 4, 1, 2, 1, 0, 1, 0, 0, 1, 0, 1, 1})
	f.Add([]byte{6, 0, 3, 4, 0, 1, 0, 0, 9, 3, 0, 1, 0, 1, 8, 4, 0, 0, 4, 1, 200, 0, 1, 9})
	f.Add([]byte{7, 0, 7, 3, 0, 1, 0, 0, 9, 0, 1, 9, 1, 1, 0, 4, 2, 1, 4, 0, 20, 0, 0, 30})
	f.Fuzz(func(t *testing.T, program []byte) {
		type model struct {
			keys   []string
			values map[string]string
		}
		var real [8]Headers
		var want [8]model
		for i := range want {
			want[i].values = map[string]string{}
		}
		for step := 0; step+2 < len(program); step += 3 {
			i, argument := program[step+1]%8, program[step+2]
			key, value := fmt.Sprint("k", argument%16), fmt.Sprint(step)
			m := &want[i]
			made := model{values: map[string]string{}}
			for n := range argument % 8 {
				made.keys = append(made.keys, fmt.Sprint("k", n))
				made.values[made.keys[n]] = "composed"
			}
			switch program[step] % 8 {
			case 0:
				real[i].Set(key, value)
				if _, ok := m.values[key]; !ok {
					m.keys = append(slices.Clone(m.keys), key)
				}
				m.values[key] = value
			case 1:
				real[i].Del(key)
				delete(m.values, key)
				m.keys = slices.DeleteFunc(slices.Clone(m.keys), func(k string) bool { return k == key })
			case 2:
				other := fmt.Sprint("k", argument/16)
				real[i].Del(key, other, key)
				delete(m.values, key)
				delete(m.values, other)
				m.keys = slices.DeleteFunc(slices.Clone(m.keys), func(k string) bool { return k == key || k == other })
			case 3:
				to := argument % 8
				real[to] = real[i]
				want[to] = model{m.keys, maps.Clone(m.values)}
			case 4:
				real[i].Grow(int(argument))
			case 5:
				real[i], want[i] = composed(made.keys...), made
			case 6:
				real[i], want[i] = HeadersFromMap(made.values), made
			case 7:
				text, err := json.Marshal(HeadersFromMap(made.values))
				if err := errors.Join(err, json.Unmarshal(text, &real[i])); err != nil {
					t.Fatal(err)
				}
				want[i] = made
			}
			for j := range real {
				if got := real[j].Map(); !maps.Equal(got, want[j].values) || real[j].Len() != len(want[j].values) {
					t.Fatalf("step %d: variable %d is %v, want %v", step/3, j, got, want[j].values)
				}
				if got := keysOf(real[j]); !slices.Equal(got, want[j].keys) {
					t.Fatalf("step %d: variable %d has order %v, want %v", step/3, j, got, want[j].keys)
				}
			}
		}
	})
}
