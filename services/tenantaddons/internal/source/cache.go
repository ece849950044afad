package source

import (
	"container/list"
	"sync"
)

// cache keeps what was used last, up to limit bytes. It is safe for concurrent use.
type cache struct {
	limit int64

	mu      sync.Mutex
	size    int64
	entries map[string]*list.Element
	order   *list.List // the last used is in front
}

type entry struct {
	key     string
	content *Content
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, entries: map[string]*list.Element{}, order: list.New()}
}

func (c *cache) get(key string) *Content {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).content
}

// put keeps content under key, unless it alone is larger than the cache.
func (c *cache) put(key string, content *Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok || content.size > c.limit {
		return
	}
	c.entries[key] = c.order.PushFront(&entry{key: key, content: content})
	c.size += content.size
	for c.size > c.limit {
		last := c.order.Back()
		old := c.order.Remove(last).(*entry)
		delete(c.entries, old.key)
		c.size -= old.content.size
	}
}
