// What the tour says, in English and in Chinese: per step a title, a few sentences, and one thing to try. `[text](address)` is a link.

export const common = {
  title: { en: "The path", zh: "导览" },
  step: { en: "Step {n} of {of}", zh: "第 {n} 步，共 {of} 步" },
  steps: { en: "Steps", zh: "步骤" },
  back: { en: "Back", zh: "上一步" },
  next: { en: "Next", zh: "下一步" },
  again: { en: "From the beginning", zh: "从头再看" },
  attempt: { en: "Try it", zh: "动手试试" },
  keys: { en: "At the end of a step, Page Down opens the next.", zh: "到了一步的末尾，再按 Page Down 就进入下一步。" },
  noPictures: {
    en: "This server has no image classifier, so this figure is empty. Start it as `vitreous serve`, or with `builtin:small builtin:small-untrained` beside your models.",
    zh: "此服务器上没有图像分类模型，因此这里没有图。请用 `vitreous serve` 启动，或在你的模型之外再加上 `builtin:small builtin:small-untrained`。",
  },
  noUntrained: {
    en: "The untrained twin is not served. Start the server as `vitreous serve`, or with `builtin:small builtin:small-untrained`.",
    zh: "服务器上没有未训练的同款模型。请用 `vitreous serve` 启动，或加上 `builtin:small builtin:small-untrained`。",
  },
  picture: { en: "Picture", zh: "图片" },
  layer: { en: "Layer", zh: "层" },
  head: { en: "Head", zh: "头" },
  patch: { en: "patch {n}", zh: "图像块 {n}" },
  reset: { en: "Reset", zh: "重置" },
  openIn: { en: "Open this in the page", zh: "在页面中打开" },
};

export const steps = {
  hand: {
    title: { en: "Attention by hand", zh: "亲手算一遍注意力" },
    words: {
      en: [
        "A transformer reads a list of tokens: pieces of words, patches of a picture, slices of sound. Attention is how one token collects what it needs from the others.",
        "Each token has three short vectors. Its query says what it looks for, its key what it offers, its value what it hands over. The dot product of a query with every key, divided by √d, gives scores; softmax turns the scores into weights that add up to 1; the output is the sum of the values, weighted.",
        "That is the whole formula: softmax(QKᵀ/√d)V.",
      ],
      zh: [
        "Transformer 读入的是一串词元（token）：可以是词的片段、图像的小块，也可以是一小段声音。注意力就是一个词元从其他词元那里收集所需信息的方式。",
        "每个词元有三个短向量：查询（query）说明它要找什么，键（key）说明它能提供什么，值（value）是它交出的内容。查询与每个键做点积，再除以 √d，得到分数；softmax 把分数变成总和为 1 的权重；输出就是各个值的加权和。",
        "整个公式就这一行：softmax(QKᵀ/√d)V。",
      ],
    },
    attempt: {
      en: "Drag the tip of the query (or move it with the arrow keys) towards one of the keys, then make it longer. The weight of that key grows: direction chooses, length sharpens.",
      zh: "拖动查询箭头的尖端（或用方向键移动），让它指向某个键，然后再拉长。那个键的权重会越来越大：方向决定看谁，长度决定看得多专注。",
    },
  },
  head: {
    title: { en: "One head at work", zh: "看一个注意力头工作" },
    words: {
      en: [
        "The same formula, in a model that was trained. This small Vision Transformer cuts a picture of clothing into 16 patches; each is a token.",
        "In a head, queries, keys and values are linear functions of the tokens, here with 32 numbers each instead of two. The colours on the picture are the weights of one softmax: what the patch you point at collects, and from where. Below are its real query, and the keys it meets.",
      ],
      zh: [
        "还是同一个公式，只是换成了训练好的模型。这个小小的 Vision Transformer 把一张服装图片切成 16 个图像块，每一块就是一个词元。",
        "在一个头里，查询、键和值都是词元的线性函数，这里各有 32 个数，而不是两个。图上的颜色是某一次 softmax 的权重：你指着的那一块从哪里、收集了多少。下面是它真实的查询向量，以及它遇到的各个键。",
      ],
    },
    attempt: {
      en: "Move over the patches. Then raise the layer: in the second, patches of the shirt collect from other patches of the shirt; in the last, nearly all of them look at the same few.",
      zh: "把指针移过各个图像块，再把层数调高：在第 2 层，衣服上的块从衣服的其他块那里收集信息；到了最后一层，几乎所有的块都盯着同样的几块。",
    },
  },
  heads: {
    title: { en: "Many heads", zh: "许多个头" },
    words: {
      en: [
        "One softmax can look for one thing. So each layer has several heads side by side, every one with its own queries, keys and values; their outputs are put next to each other and mixed by one more matrix.",
        "These are all the heads of the model on this picture: a row per layer, each small map a full 16 × 16 table of weights. Click one and it is switched off: its output becomes zero, and the model computes its answer without it.",
      ],
      zh: [
        "一次 softmax 只能找一种东西。所以每一层都有几个并排的头，各有自己的查询、键和值；它们的输出拼接在一起，再由一个矩阵混合。",
        "下面是模型在这张图片上的全部注意力头：每行一层，每张小图都是一张完整的 16 × 16 权重表。点一下就能关掉一个头：它的输出变成零，模型在没有它的情况下重新计算答案。",
      ],
    },
    attempt: {
      en: "Switch off single heads: hardly anything happens, because others do similar work. Then switch off whole layers by their numbers. With the first four gone, the boot becomes a sandal.",
      zh: "逐个关掉注意力头：几乎什么都不会发生，因为别的头在做相近的事。再点左边的数字，把整层关掉：前四层都关掉之后，靴子就变成了凉鞋。",
    },
  },
  block: {
    title: { en: "A block", zh: "一个模块" },
    words: {
      en: [
        "Attention moves information between tokens. The MLP then works on every token by itself. Neither replaces what was there: each adds its result to it. The sum is the residual stream, and it is why deep models can be trained: the shortest path through them is the identity.",
        "A norm keeps the numbers in range. Here is one token on its way through one layer, number by number: what came in, what attention added, what the MLP added, what goes on.",
      ],
      zh: [
        "注意力在词元之间传递信息，随后 MLP 对每个词元单独加工。两者都不会取代原有的内容，而是把结果加上去。这个不断累加的和就是残差流；深层模型之所以训练得动，正是因为穿过它最短的路就是恒等映射。",
        "归一化让数值保持在合适的范围内。下面是一个词元穿过一层的全过程，每个数都在：进来的是什么，注意力加了什么，MLP 加了什么，出去的又是什么。",
      ],
    },
    attempt: {
      en: "In layer 2, scale what attention adds to this coat down to 0: half of its probability is lost. Then, in layer 1, take the MLP away: the answer becomes surer. What a part adds need not help.",
      zh: "在第 2 层，把注意力为这件外套所加的部分调到 0：它的概率会失去一半。再在第 1 层去掉 MLP：答案反而更确定了。某个部分所加的内容，不一定有帮助。",
    },
  },
  whole: {
    title: { en: "The whole model", zh: "整个模型" },
    words: {
      en: [
        "Patches become vectors, positions are added, six blocks follow, the tokens are averaged, and one matrix turns the average into a number per class. Softmax makes these numbers probabilities.",
        "You need not wait for the last layer: apply that final matrix to the tokens after each block, and you see the answer form. This is called a logit lens.",
      ],
      zh: [
        "图像块变成向量，加上位置信息，依次经过六个模块，再对所有词元取平均，最后由一个矩阵把平均值变成每个类别一个数；softmax 把这些数变成概率。",
        "不必等到最后一层：在每个模块之后都用这个最终的矩阵读一次，就能看到答案逐渐成形。这叫作 logit lens（逐层解读）。",
      ],
    },
    attempt: {
      en: "Choose the dress: it is found after two blocks, and certain at the end. Then the coat: it passes for a sandal, then for a pullover, and stays in doubt to the last block.",
      zh: "选连衣裙：两个模块之后就认出来了，到最后已十分确定。再选外套：它先被当成凉鞋，又被当成套头衫，直到最后一个模块仍有疑问。",
    },
  },
  training: {
    title: { en: "What training changed", zh: "训练改变了什么" },
    words: {
      en: [
        "The same model twice: with the random numbers it began with, and after 1,500 steps of gradient descent on 10,000 pictures, two minutes on two cores. Nobody told a head what to look at. Every step only moved each of the 1.2 million numbers a little in the direction that lowers the loss.",
        "Before, every head spreads its attention almost evenly, and the answer is a guess. After, the maps have structure, and the answer is mostly right.",
      ],
      zh: [
        "同一个模型的两个样子：一个是最初的随机数，另一个在 10,000 张图片上做了 1,500 步梯度下降，在两个核心上用时两分钟。没有人告诉注意力头该看什么，每一步只是让 120 万个数各自朝着降低损失的方向移动一点点。",
        "训练前，每个头的注意力几乎均匀铺开，答案全靠瞎猜；训练后，注意力图有了结构，答案大多是对的。",
      ],
    },
    attempt: {
      en: "Go through the layers, and then let both models sort all ten pictures.",
      zh: "逐层看下去，然后让两个模型都来辨认全部十张图片。",
    },
  },
  writes: {
    title: { en: "The decoder that writes", zh: "会写字的解码器" },
    words: {
      en: [
        "A language model is the same stack of blocks with one rule more: a token may look back, never ahead. This causal mask lets it learn from every position of a text at once, by guessing the next token.",
        "Writing is guessing in a loop: take the probabilities behind the last token, pick one, append it, repeat. A translator does the same, with a second attention that looks at the source sentence.",
      ],
      zh: [
        "语言模型是同样的一叠模块，只多一条规矩：词元只能往回看，不能往前看。有了这个因果掩码，模型就能在一段文本的每个位置上同时学习，学的就是猜下一个词元。",
        "写作就是循环地猜：取最后一个词元之后的概率分布，挑一个词元接上去，再来一遍。翻译模型也是如此，只是多了一层看向源句的注意力。",
      ],
    },
    attempt: {
      en: "Write a few tokens with temperature 0, then with 1.5. Then change the text, and see what the guess depends on.",
      zh: "先用温度 0 写几个词元，再换成 1.5。然后改动文本，看看猜测取决于什么。",
    },
  },
  next: {
    title: { en: "Where to go next", zh: "接下来去哪里" },
    words: {
      en: [
        "You have seen every part. What remains is scale: the same blocks, wider, deeper, and over longer texts. Attention compares every token with every other, so its cost grows with the square of the length; the tricks below are about that.",
        "Good companions to read: [Attention Is All You Need](https://arxiv.org/abs/1706.03762) (Vaswani et al., 2017), [The Illustrated Transformer](https://jalammar.github.io/illustrated-transformer/) (Jay Alammar), [The Annotated Transformer](https://nlp.seas.harvard.edu/annotated-transformer/) (Harvard NLP).",
      ],
      zh: [
        "至此，每个部件你都看过了，剩下的就是规模：同样的模块，更宽、更深，处理更长的文本。注意力要把每个词元与其他所有词元逐一比较，所以开销随长度的平方增长；下面这些办法都是为此而来。",
        "值得一读：[Attention Is All You Need](https://arxiv.org/abs/1706.03762)（Vaswani 等，2017）、[The Illustrated Transformer](https://jalammar.github.io/illustrated-transformer/)（Jay Alammar）、[The Annotated Transformer](https://nlp.seas.harvard.edu/annotated-transformer/)（Harvard NLP）。",
      ],
    },
    attempt: {
      en: "Double the length and watch which number doubles, which quadruples, and which does not grow at all. Then take one of the commands with you.",
      zh: "把长度翻倍，看看哪个数翻倍、哪个数变成四倍、哪个数完全不变。然后带走一条命令。",
    },
  },
};
