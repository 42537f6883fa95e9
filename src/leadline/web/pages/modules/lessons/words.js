// The words of the view of lessons. What a lesson says comes from the server.
const ENGLISH = {
  title: "Lessons",
  about: "Ten short lessons on depth. Each has one picture to play with, the claims that belong to it with their verdicts as measured, and a question.",
  minutes: "{n} min",
  place: "Lesson {n} of {of}",
  all: "All lessons",
  previous: "Previous",
  next: "Next",
  try: "Try it",
  open: "Open in the playground",
  formula: "Formula",
  missing: "The picture cannot be drawn: {reason}",
  says: "What is said",
  numbers: "The numbers behind it",
  number: "number",
  measured: "measured",
  limit: "limit",
  outcome: "outcome",
  more: "All about this claim",
  question: "Question",
  answer: "Answer",
};

const CHINESE = {
  title: "课程",
  about: "关于深度的十节短课。每节课有一幅可以动手调节的图、相关的论断及其实测判定，还有一个问题。",
  minutes: "{n} 分钟",
  place: "第 {n} 课，共 {of} 课",
  all: "全部课程",
  previous: "上一课",
  next: "下一课",
  try: "动手试试",
  open: "在试验台里打开",
  formula: "公式",
  missing: "图无法绘制：{reason}",
  says: "常见的说法",
  numbers: "背后的数据",
  number: "数",
  measured: "测量值",
  limit: "界限",
  outcome: "结果",
  more: "这条论断的全部内容",
  question: "问题",
  answer: "答案",
};

const RUSSIAN = {
  title: "Уроки",
  about: "Десять коротких уроков о глубине. В каждом — график, с которым можно поиграть, относящиеся к делу утверждения с измеренными вердиктами и вопрос.",
  minutes: "{n} мин",
  place: "Урок {n} из {of}",
  all: "Все уроки",
  previous: "Назад",
  next: "Дальше",
  try: "Попробуйте",
  open: "Открыть на площадке",
  formula: "Формула",
  missing: "График не удалось построить: {reason}",
  says: "Что говорят",
  numbers: "Числа, которые за этим стоят",
  number: "число",
  measured: "измерено",
  limit: "граница",
  outcome: "итог",
  more: "Все об этом утверждении",
  question: "Вопрос",
  answer: "Ответ",
};

const WORDS = { en: ENGLISH, zh: CHINESE, ru: RUSSIAN };

// say("place", { n: 3, of: 10 }) in the language; English where it has no such words.
export function sayIn(language) {
  const words = WORDS[language] || ENGLISH;
  return (key, values) =>
    (words[key] ?? ENGLISH[key]).replace(/\{(\w+)\}/g, (hole, name) => (values && name in values ? String(values[name]) : hole));
}
